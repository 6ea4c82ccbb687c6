// Package kvmhost gives tests and the demo a real libvirt host: sshd, libvirtd and QEMU in namespaces of their own on
// this machine, made by the commands in this folder (see README.md). It needs root and some Debian packages; Check and
// Require say which.
//
// Host N has the address 10.77.N.2; this machine's end of the wire is 10.77.N.1 (Host.Outside). Guests get addresses in
// 10.88.N.0/24. They are routed and not translated: this machine reaches each guest at its own address, and a server
// that listens on Host.Outside sees guests come from theirs. Guests reach Host.Outside, their own host, each other and
// nothing else: there is no default route. Their DHCP names Host.Outside as the name server. Two hosts do not see each
// other.
//
// Hosts 1 and 2 are those that live tests share; a test that cuts or downs a host takes a number of its own.
package kvmhost
