#!/bin/sh
# Makes the two base images of the Dockerfile if no registry of images can be reached:
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

# The files of each image are kept in the user's cache folder (.ci/cache.py), not only in buildah's.
# $1: the image, $2: the folder of its files, $3: the files that the image contains.
image() {
  printf '%s\n' "FROM scratch" "$3" >"$2.containerfile"
  buildah build --quiet --isolation chroot --tag "$1" --file "$2.containerfile" "$(readlink -f "$2")"
}

mkdir -p "$made"
# Python 3.11 is bookworm's own. Of the documents only the copyrights are kept. Debian's packages get
# updates, so the files are fetched again in a new month.
if ! buildah inspect "localhost/dptrees-debian:$DEBIAN" >/dev/null 2>&1; then
  python3 .ci/cache.py debian "$made/debian" --text "$(date +%Y-%m)" --text "$DEBIAN" -- sh -c '
    echo "Fetching the packages of a small Debian (a minute or two)"
    mmdebstrap --quiet --variant=minbase --include=python3,python3-venv,ca-certificates \
      --dpkgopt="path-exclude=/usr/share/man/*" --dpkgopt="path-exclude=/usr/share/locale/*" \
      --dpkgopt="path-exclude=/usr/share/doc/*" --dpkgopt="path-include=/usr/share/doc/*/copyright" \
      "$1" "$INTO/root.tar"' - "$DEBIAN"
  image "localhost/dptrees-debian:$DEBIAN" "$made/debian" "ADD root.tar /"
fi

if ! buildah inspect "localhost/beam-harness:$BEAM" >/dev/null 2>&1; then
  python3 .ci/cache.py beam-harness "$made/harness" --text "$BEAM" -- sh -euc '
    echo "Building the harness of Beam $1 (a minute or two)"
    harness="$INTO/opt/apache/beam"
    mkdir -p "$harness"
    GOBIN="$harness" CGO_ENABLED=0 go install -trimpath -ldflags="-s -w" \
      "github.com/apache/beam/sdks/v2/python/container@v$1"
    mv "$harness/container" "$harness/boot"
    source=$(go mod download -json "github.com/apache/beam/sdks/v2@v$1" |
      sed -n "s/^\t\"Dir\": \"\(.*\)\",\$/\1/p")
    install -m 644 "$source/LICENSE" "$harness/LICENSE"' - "$BEAM"
  image "localhost/beam-harness:$BEAM" "$made/harness" "COPY opt /opt"
fi
buildah images --filter reference=localhost/dptrees-debian --filter reference=localhost/beam-harness
