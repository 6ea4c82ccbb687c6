#!/bin/sh
case $1 in
deconfig)
	ip addr flush dev "$interface"
	ip link set "$interface" up
	;;
bound | renew)
	ip addr flush dev "$interface"
	ip addr add "$ip/${mask:-24}" dev "$interface"
	[ -z "$router" ] || ip route replace default via "${router%% *}"
	: >/etc/resolv.conf
	for server in $dns; do echo "nameserver $server" >>/etc/resolv.conf; done
	;;
esac
