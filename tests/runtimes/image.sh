# Makes an image of one static program by hand, without a registry: $1 is busybox, $2 the folder for image.tar.
set -eu
cd "$2"
mkdir -p layer/bin layer/etc layer/proc layer/sys layer/dev layer/tmp image
cp "$1" layer/bin/busybox
for name in sh sleep ip ping ping6 true cat; do ln -sf busybox layer/bin/$name; done
echo root:x:0:0:root:/:/bin/sh >layer/etc/passwd
tar -C layer --numeric-owner --owner=0 --group=0 -cf image/layer.tar .
layer=$(sha256sum image/layer.tar | cut -d' ' -f1)
printf '{"architecture":"amd64","os":"linux","config":{"Env":["PATH=/bin"],"Cmd":["/bin/sleep","1000000"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]},"history":[{"created":"2024-01-01T00:00:00Z"}]}' "$layer" >config.json
config=$(sha256sum config.json | cut -d' ' -f1)
mv config.json "image/$config.json"
printf '[{"Config":"%s.json","RepoTags":["docker.io/library/bb:1"],"Layers":["layer.tar"]}]' "$config" >image/manifest.json
tar -C image -cf image.tar manifest.json "$config.json" layer.tar
