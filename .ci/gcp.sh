#!/bin/sh
# The clients of Google Cloud, in an environment that sees the packages of another one.
#   .ci/gcp.sh clients PYTHON              installs what PYTHON's environment lacks into $INTO
#   .ci/gcp.sh environment PYTHON PLACE CLIENTS   an environment of PYTHON's packages and those
set -eu
packages() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

case $1 in
clients)
  "$2" -m venv --clear --without-pip "$INTO"
  packages "$2" >"$(packages "$INTO/bin/python")/main.pth"
  echo "Installing the clients of Google Cloud (once, a minute)"
  "$INTO/bin/python" -m pip install --quiet --disable-pip-version-check 'apache-beam[gcp]>=2.77,<2.78'
  # The cache serves clones in other folders.
  rm "$(packages "$INTO/bin/python")/main.pth"
  ;;
environment)
  "$2" -m venv --clear --without-pip "$3"
  clients=$(packages "$4/bin/python")
  printf 'import site; site.addsitedir("%s")\n%s\n' "$clients" "$(packages "$2")" \
    >"$(packages "$3/bin/python")/main.pth"
  ;;
esac
