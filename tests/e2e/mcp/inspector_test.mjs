// inspector_test.mjs BIN_DIR legacy|modern: the MCP Inspector's command line; a process a call.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { failure, lifeOfJobs, ponderMcp, withDaemon } from './harness.mjs';

const era = process.argv[3];
const inspector = join(dirname(fileURLToPath(import.meta.url)), 'node_modules/.bin/mcp-inspector');

await withDaemon(async ({ home, workspace }) => {
  const config = join(home, 'inspector.json');
  writeFileSync(config, JSON.stringify({ mcpServers: { ponder: {
    type: 'stdio', command: ponderMcp, args: ['--home', home], cwd: workspace, protocolEra: era } } }));
  /** Exit code and parsed stdout of one run. */
  const run = (...words) => new Promise(done => execFile(inspector,
    ['--cli', '--config', config, '--server', 'ponder', '--format', 'json', '--cwd', workspace, ...words],
    { env: { ...process.env, HOME: home }, maxBuffer: 1 << 24 },
    (error, stdout, stderr) => {
      const text = stdout.trim();
      done({ code: error ? error.code : 0, output: text ? JSON.parse(text) : null, stderr });
    }));
  const call = async (name, args) => {
    const words = Object.entries(args).flatMap(([key, value]) =>
      ['--tool-arg', `${key}=${typeof value === 'string' ? value : JSON.stringify(value)}`]);
    const { code, output, stderr } = await run('--method', 'tools/call', '--tool-name', name, ...words);
    assert.ok(output, `${name}: ${stderr}`);
    const result = output.result ?? output;
    assert.equal(code, result.isError ? 5 : 0, `${name}: exit code ${code}, ${stderr}`);
    return result;
  };

  const list = await run('--method', 'tools/list', '--strict');
  assert.equal(list.code, 0, `the schemas are portable: ${list.stderr}`);
  assert.equal((list.output.result ?? list.output).tools.length, 6);
  await lifeOfJobs(call, { workspace });
  failure(await call('submit', { task: 'x', mode: 'resume' }), 'continue_from');
  const unknown = await run('--method', 'tools/call', '--tool-name', 'nothing');
  assert.notEqual(unknown.code, 0);
});
console.log(`inspector ${era}: all held`);
