#!/bin/sh
# Builds the two images by docker if its daemon answers, else by buildah. The argument is one of
#   images  build both (`make container`); this is the default
#   sbom    write the list of their packages, build/container/sbom.cdx.json (`make sbom`)
#   pack    print digest and size of both as a registry stores them; buildah only
#   push    push both to REGISTRY, and write their digests to build/container/digests.txt
#   pin     write the digests of the last push into deploy/kubernetes/images
# Variables of the environment, each with a default:
#   REGISTRY        localhost      the prefix of the names
#   PYTHON_VERSION  3.11           selects the lock
#   EXTRAS          as in the Dockerfile: extras of dptrees, with spaces between them
#   BASE_IMAGE, HARNESS_IMAGE      as in the Dockerfile
#   PIP_CONF, CERTIFICATES         files of pip and of authorities, for a private index
#   SOURCE_DATE_EPOCH              the time in the images: the last commit of recipe or locks
set -eu
cd "$(dirname "$0")/../.."
wanted=${1:-images}
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' dpcore/__init__.py)
made=build/container
mkdir -p "$made"

image() {
  echo "${REGISTRY:-localhost}/dptrees-$1:$version"
}

if [ "$wanted" = pin ]; then
  [ -s "$made/digests.txt" ] || { echo "No digest is known: $0 push comes first." >&2; exit 1; }
  # shellcheck disable=SC2046
  exec python3 deploy/container/pin.py $(cat "$made/digests.txt")
fi

if docker info >/dev/null 2>&1; then
  builder=docker
elif command -v buildah >/dev/null; then
  builder=buildah
else
  echo "Images need docker with its daemon running, or buildah: install one of them." >&2
  exit 1
fi

case $wanted in
images | sbom) ;;
pack)
  [ "$builder" = buildah ] || { echo "pack needs buildah; docker: use push." >&2; exit 1; }
  mkdir -p "$made/packed"
  for target in worker launcher; do
    rm -rf "$made/packed/$target"
    buildah push --quiet --digestfile "$made/$target.digest" "$(image "$target")" \
      "oci:$made/packed/$target"
    echo "$(image "$target" | sed 's/:[^:]*$//')@$(cat "$made/$target.digest")" \
      "$(du --bytes --summarize "$made/packed/$target" | cut -f1) bytes"
  done
  exit
  ;;
push)
  : >"$made/digests.txt"
  for target in worker launcher; do
    if [ "$builder" = docker ]; then
      docker push --quiet "$(image "$target")"
      docker image inspect --format '{{index .RepoDigests 0}}' "$(image "$target")"
    else
      buildah push --quiet --digestfile "$made/$target.digest" "$(image "$target")"
      echo "$(image "$target" | sed 's/:[^:]*$//')@$(cat "$made/$target.digest")"
    fi >>"$made/digests.txt"
  done
  # docker names the image that it pushed before the line with the digest.
  sed -i '/@sha256:/!d' "$made/digests.txt"
  cat "$made/digests.txt"
  exit
  ;;
*)
  echo "$0: $wanted is none of images, sbom, pack, push, pin." >&2
  exit 2
  ;;
esac

python=${PYTHON_VERSION:-3.11}
for extra in ${EXTRAS:-}; do
  if [ ! -s "deploy/container/locks/python$python-$extra.txt" ]; then
    echo "EXTRAS: there is no lock deploy/container/locks/python$python-$extra.txt." >&2
    exit 2
  fi
done
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
# The time of the recipe and the locks, not of the build: the same sources give the same layers, and
# a new version of dptrees alone keeps the layer of its packages.
recipe="deploy/container/Dockerfile deploy/container/slim.py deploy/container/locks"
# shellcheck disable=SC2086
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct -- $recipe 2>/dev/null || true)}
epoch=${epoch:-315532800}
set -- --file deploy/container/Dockerfile --build-arg "PYTHON_VERSION=$python" \
  --build-arg "VERSION=$version" --build-arg "REVISION=$revision" \
  --build-arg "SOURCE_DATE_EPOCH=$epoch"
[ -z "${EXTRAS+set}" ] || set -- "$@" --build-arg "EXTRAS=$EXTRAS"
[ -z "${BASE_IMAGE:-}" ] || set -- "$@" --build-arg "BASE_IMAGE=$BASE_IMAGE"
[ -z "${HARNESS_IMAGE:-}" ] || set -- "$@" --build-arg "HARNESS_IMAGE=$HARNESS_IMAGE"
[ -z "${PIP_CONF:-}" ] || set -- "$@" --secret "id=pip,src=$PIP_CONF"
[ -z "${CERTIFICATES:-}" ] || set -- "$@" --secret "id=certificates,src=$CERTIFICATES"
if [ "$builder" = docker ]; then
  build="docker build"
else
  # Without a daemon the steps run as root in a separate root folder, with no other privilege.
  build="buildah build --isolation chroot --layers --timestamp $epoch"
fi
if [ "$wanted" = sbom ]; then
  $build "$@" --target sbom --output "$made" .
  exit
fi
for target in worker launcher; do
  echo "Building $(image "$target") (the first time some minutes)"
  $build "$@" --target "$target" --tag "$(image "$target")" .
done
