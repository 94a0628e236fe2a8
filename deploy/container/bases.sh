#!/bin/sh
# Makes the two images that the Dockerfile begins with where no registry of images is reached:
# Debian's packages by mmdebstrap, and the harness of Beam by Go from its module. Needs root.
#   make container-bases
#   make container BASE_IMAGE=localhost/dptrees-debian:bookworm HARNESS_IMAGE=localhost/beam-harness:2.77.0
set -eu
cd "$(dirname "$0")/../.."

BEAM=2.77.0
DEBIAN=bookworm
made=build/container
for needed in buildah go mmdebstrap; do
  if ! command -v "$needed" >/dev/null; then
    echo "The bases of the images need $needed: install it and run make container-bases again." >&2
    exit 1
  fi
done

# $1: the image, $2: its folder, whose Containerfile is made here.
image() {
  printf '%s\n' "FROM scratch" "$3" >"$2/Containerfile"
  buildah build --quiet --isolation chroot --tag "$1" "$2"
}

# Python 3.11 is bookworm's own; of documents only the copyrights are kept.
if ! buildah inspect "localhost/dptrees-debian:$DEBIAN" >/dev/null 2>&1; then
  echo "Fetching the packages of a small Debian (a minute or two)"
  mkdir -p "$made/debian"
  mmdebstrap --quiet --variant=minbase --include=python3,python3-venv,ca-certificates \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    "$DEBIAN" "$made/debian/root.tar"
  image "localhost/dptrees-debian:$DEBIAN" "$made/debian" "ADD root.tar /"
  rm "$made/debian/root.tar"
fi

if ! buildah inspect "localhost/beam-harness:$BEAM" >/dev/null 2>&1; then
  echo "Building the harness of Beam $BEAM (a minute or two)"
  harness="$made/harness/opt/apache/beam"
  mkdir -p "$harness"
  GOBIN="$PWD/$harness" CGO_ENABLED=0 go install -trimpath -ldflags='-s -w' \
    "github.com/apache/beam/sdks/v2/python/container@v$BEAM"
  mv "$harness/container" "$harness/boot"
  source=$(go mod download -json "github.com/apache/beam/sdks/v2@v$BEAM" |
    sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  install -m 644 "$source/LICENSE" "$harness/LICENSE"
  image "localhost/beam-harness:$BEAM" "$made/harness" "COPY opt /opt"
fi
buildah images --filter reference=localhost/dptrees-debian --filter reference=localhost/beam-harness
