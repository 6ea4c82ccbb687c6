#!/bin/sh
# Guests of one image must not share a machine ID: DHCP servers would take them for one, and give all the same address. An image that was
# prepared by hand may have one baked in; this guest gets its own then. One that was made at this boot stays.
root=${EGRESS_ROOT:-} # a tree instead of the running system, for tests
own=@UID@
file=$root/etc/machine-id
margin=3600 # seconds that the guest's clock may have been set forward since it booted

[ -n "$own" ] && [ -s "$file" ] || exit 0
written=$(stat -c %Y "$file") && booted=$(sed -n 's/^btime //p' "$root/proc/stat") || exit 0
[ "$written" -lt "$((booted - margin))" ] 2>/dev/null && [ "$(cat "$file")" != "$own" ] || exit 0
echo "egress-proxies: the image brought a machine ID along: this guest gets its own" >&2
echo "$own" >"$file.new" && chmod 0444 "$file.new" && mv -f "$file.new" "$file" || exit 1
dbus=$root/var/lib/dbus/machine-id
[ ! -f "$dbus" ] || [ -L "$dbus" ] || cp "$file" "$dbus"
# What asks for an address by it asks again.
[ ! -d "$root/run/systemd/system" ] || systemctl try-restart systemd-networkd.service
