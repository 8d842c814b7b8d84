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

# Nothing is installed at run time: the program's environment has no pip of its own.
python3 -m venv --without-pip "$destination"
install() {
  "$work/build/bin/pip" --python "$destination/bin/python" install --quiet \
    --disable-pip-version-check --no-compile "$@"
}
install --require-hashes -r "$source_dir/requirements/run.txt"
install --no-deps "$work"/dist/*.whl
"$destination/bin/python" -m compileall -q -j 0 "$destination/lib"
