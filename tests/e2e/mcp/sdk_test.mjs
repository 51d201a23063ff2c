// sdk_test.mjs BIN_DIR sdk1|legacy|auto|modern: the official TypeScript clients.
import assert from 'node:assert/strict';
import { failure, lifeOfJobs, ponderMcp, success, withDaemon } from './harness.mjs';

const kind = process.argv[3];

/** A connected client and the version it agreed on. */
async function connect(home, workspace) {
  const server = { command: ponderMcp, args: ['--home', home], cwd: workspace, stderr: 'inherit' };
  if (kind === 'sdk1') {
    const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
    const { StdioClientTransport } = await import('@modelcontextprotocol/sdk/client/stdio.js');
    const client = new Client({ name: 'sdk-1', version: '1' });
    await client.connect(new StdioClientTransport(server));
    return { client, call: (name, args, options) => client.callTool({ name, arguments: args }, undefined, options) };
  }
  const { Client } = await import('@modelcontextprotocol/client');
  const { StdioClientTransport } = await import('@modelcontextprotocol/client/stdio');
  const mode = kind === 'modern' ? { pin: '2026-07-28' } : kind;
  const client = new Client({ name: 'sdk-2', version: '1' }, { versionNegotiation: { mode } });
  await client.connect(new StdioClientTransport(server));
  assert.equal(client.getNegotiatedProtocolVersion(), kind === 'legacy' ? '2025-11-25' : '2026-07-28');
  return { client, call: (name, args, options) => client.callTool({ name, arguments: args }, options) };
}

await withDaemon(async ({ home, workspace }) => {
  const { client, call } = await connect(home, workspace);
  const { tools } = await client.listTools();
  assert.deepEqual(tools.map(t => t.name), ['ask', 'submit', 'status', 'result', 'cancel', 'health']);
  assert.ok(client.getInstructions().includes('submit'));

  await lifeOfJobs(call, { workspace });
  await assert.rejects(call('nothing', {}), /-32602|unknown tool/i);

  // Progress comes only when asked for, and rises; a wait that runs out is no error.
  const reports = [];
  const waited = success(await call('ask', { question: 'Slow [[stub prefill_s=40]]', wait_s: 12 },
    { onprogress: p => reports.push(p), timeout: 60_000 }));
  assert.equal(waited.data.state, 'running');
  assert.ok(reports.length >= 1 && reports.length <= 3, `${reports.length} reports in 12 s`);
  for (let i = 1; i < reports.length; ++i) assert.ok(reports[i].progress > reports[i - 1].progress);

  // The client's own time-out ends the wait and not the job.
  await assert.rejects(call('ask', { question: 'Slower [[stub prefill_s=41]]' }, { timeout: 500 }));
  const live = success(await call('status', {})).data.jobs.filter(j => ['queued', 'running'].includes(j.state));
  assert.equal(live.length, 2);
  for (const job of live) success(await call('cancel', { job_id: job.job_id }));
  failure(await call('result', { job_id: live[0].job_id }), 'cancelled');
  await client.close();
});
console.log(`${kind}: all held`);
