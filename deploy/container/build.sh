#!/bin/sh
# Builds the two images by docker if its daemon answers, else by buildah (`make container`). With the
# argument sbom it writes the list of their packages, build/container/sbom.cdx.json (`make sbom`).
# Variables of the environment, each with a default:
#   REGISTRY        localhost      the prefix of the names
#   PYTHON_VERSION  3.11           selects the lock
#   BASE_IMAGE, HARNESS_IMAGE      as in the Dockerfile
#   PIP_CONF, CERTIFICATES         files of pip and of authorities, for a private index
set -eu
cd "$(dirname "$0")/../.."
wanted=${1:-images}

version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' dpcore/__init__.py)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
if docker info >/dev/null 2>&1; then
  build="docker build"
elif command -v buildah >/dev/null; then
  # Without a daemon the steps run as root in a separate root folder, with no other privilege.
  build="buildah build --isolation chroot --layers"
else
  echo "Images need docker with its daemon running, or buildah: install one of them." >&2
  exit 1
fi

set -- --file deploy/container/Dockerfile \
  --build-arg "PYTHON_VERSION=${PYTHON_VERSION:-3.11}" \
  --build-arg "VERSION=$version" --build-arg "REVISION=$revision"
[ -z "${BASE_IMAGE:-}" ] || set -- "$@" --build-arg "BASE_IMAGE=$BASE_IMAGE"
[ -z "${HARNESS_IMAGE:-}" ] || set -- "$@" --build-arg "HARNESS_IMAGE=$HARNESS_IMAGE"
[ -z "${PIP_CONF:-}" ] || set -- "$@" --secret "id=pip,src=$PIP_CONF"
[ -z "${CERTIFICATES:-}" ] || set -- "$@" --secret "id=certificates,src=$CERTIFICATES"
if [ "$wanted" = sbom ]; then
  $build "$@" --target sbom --output build/container .
  exit
fi
for target in worker launcher; do
  image="${REGISTRY:-localhost}/dptrees-$target:$version"
  echo "Building $image (the first time some minutes)"
  $build "$@" --target "$target" --tag "$image" .
done
