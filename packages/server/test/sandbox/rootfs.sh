# Makes the tar of a small root directory from programs of this host, with the libraries that they and Node need.
# sh rootfs.sh <file.tar> <node>
set -e
out=$1
node=$2
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
for folder in usr/bin usr/sbin usr/lib usr/lib64 etc proc sys dev tmp run/berth workspace home/agent var root; do
  mkdir -p "$root/$folder"
done
# Runtimes give a temporary folder the mode that the image has there.
chmod 1777 "$root/tmp"
for link in bin sbin lib lib64; do ln -s "usr/$link" "$root/$link"; done
copy() {
  folder=$(readlink -f "$(dirname "$1")")
  mkdir -p "$root$folder"
  cp -L "$1" "$root$folder/$(basename "$1")"
}
for name in sh bash cat ls echo env id touch head tail tr md5sum sleep setsid perl rm mkdir rmdir chmod ln readlink stat \
  grep wc cut fallocate timeout mount umount unshare su dmesg hostname kill getent mkfifo mknod mktemp cp mv dd ps sort seq true \
  false test printf date uname truncate ip; do
  file=$(command -v "$name" || true)
  case $file in /*) copy "$file" ;; esac
done
# The loader's folder, whatever this system calls it.
for file in "$root"/usr/bin/* "$root"/usr/sbin/* "$node"; do
  ldd "$file" 2>/dev/null | grep -o '/[^ ]*' || true
done | sort -u | while read -r library; do copy "$library"; done
for folder in /usr/lib/*/perl-base; do
  [ -d "$folder" ] || continue
  mkdir -p "$root$(dirname "$folder")"
  cp -a "$folder" "$root$folder"
done
echo 'root:x:0:0:root:/:/bin/sh' > "$root/etc/passwd"
echo 'root:x:0:' > "$root/etc/group"
tar -C "$root" -cf "$out.$$" .
mv "$out.$$" "$out"
