#!/bin/sh
# Build the program into a folder of its own: locked requirements, our wheel, compiled bytecode.
# The Dockerfile runs it, and a test runs it outside of a container.
#   build.sh SOURCE DESTINATION
set -eu
source_dir=$1
destination=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/build"
"$work/build/bin/pip" install --quiet --disable-pip-version-check --require-hashes \
  -r "$source_dir/requirements/build.txt"
mkdir "$work/source"
cp -R "$source_dir/app" "$source_dir/migrations" "$source_dir/pyproject.toml" \
  "$source_dir/README.md" "$source_dir/LICENSE" "$work/source"
"$work/build/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  --wheel-dir "$work/dist" "$work/source"

python3 -m venv "$destination"
"$destination/bin/pip" install --quiet --disable-pip-version-check --no-compile --require-hashes \
  -r "$source_dir/requirements/run.txt"
"$destination/bin/pip" install --quiet --disable-pip-version-check --no-compile --no-deps \
  "$work"/dist/*.whl
"$destination/bin/python" -m compileall -q -j 0 "$destination/lib"
