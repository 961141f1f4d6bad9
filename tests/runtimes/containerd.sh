# Process 1 of containerd's process namespace, in mounts of its own: $1 is the folder prepared for it.
set -eu
# The lab's /sys lies over the machine's, which has the cgroups.
umount -l /sys
mount -t proc proc /proc
mount --bind "$1/etc" /etc
mount --bind "$1/opt" /opt
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib
containerd --log-level info &
# Not `exec`: orphans need somebody who waits for them.
wait
