#!/usr/bin/env bash
# run.sh DIR TEST.mjs ARGUMENTS...: runs DIR/TEST.mjs with the Node.js that install.sh put there.
set -euo pipefail
directory=$1 script=$2
shift 2
for node in "$directory"/node_modules/node-linux-*/bin/node; do
  if [ -x "$node" ]; then
    export PATH="${node%/*}:$PATH" MCP_INSPECTOR_SECRET_STORE=memory
    exec "$node" "$directory/$script" "$@"
  fi
done
echo "Node.js 22 is not in $directory/node_modules; run install.sh $directory first" >&2
exit 1
