// wire_test.mjs BIN_DIR: what no client library shows - latencies during a long ask, silence after
// `cancelled`, what survives the end of ponder-mcp. Speaks JSON-RPC by hand.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { join } from 'node:path';
import { binDir, get, ponderMcp, success, until, withDaemon } from './harness.mjs';

class Wire {
  constructor(home, workspace) {
    this.process = spawn(ponderMcp, ['--home', home], { cwd: workspace, stdio: ['pipe', 'pipe', 'inherit'] });
    this.ended = new Promise(r => this.process.on('exit', r));
    this.waiting = new Map();
    this.lines = [];
    this.nextId = 0;
    createInterface({ input: this.process.stdout }).on('line', line => {
      const message = JSON.parse(line); // every line of stdout is protocol
      this.lines.push(message);
      this.waiting.get(message.id)?.(message);
    });
  }
  send(message) { this.process.stdin.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\n'); }
  request(method, params = {}) {
    const id = this.nextId++;
    const answer = new Promise(done => this.waiting.set(id, done));
    this.send({ id, method, params });
    return Object.assign(answer, { id });
  }
  tool(name, args = {}, meta) {
    return this.request('tools/call', { name, arguments: args, ...(meta ? { _meta: meta } : {}) });
  }
  async hello() {
    await this.request('initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'wire', version: '1' } });
    this.send({ method: 'notifications/initialized' });
    return this;
  }
}

await withDaemon(async ({ home, workspace }) => {
  const wire = await new Wire(home, workspace).hello();

  // 45 s of one ask hold up nothing else.
  const began = Date.now();
  const ask = wire.tool('ask', { question: 'Long [[stub prefill_s=50]]' }, { progressToken: 'p' });
  for (let i = 0; i < 30; ++i) { // over all of its time
    await new Promise(r => setTimeout(r, 1400));
    for (const begin of [() => wire.request('ping'), () => wire.request('tools/list'), () => wire.tool('status')]) {
      const at = performance.now();
      const answer = await begin();
      assert.ok(answer.result, JSON.stringify(answer));
      assert.ok(performance.now() - at < 200, `call ${i} took ${performance.now() - at} ms`);
    }
  }
  const told = success((await ask).result);
  const seconds = (Date.now() - began) / 1000;
  assert.ok(seconds > 43 && seconds < 47, `ask answered after ${seconds} s`);
  assert.equal(told.data.state, 'running');
  const progress = wire.lines.filter(m => m.method === 'notifications/progress').map(m => m.params.progress);
  assert.ok(progress.length >= 5 && progress.length <= 10, `${progress.length} reports in 45 s`);
  assert.ok(progress.every((p, i) => i === 0 || p > progress[i - 1]));
  const job = told.data.job_id;

  // The literal wait command of the answer waits for that job.
  const command = told.data.next.shell;
  assert.ok(command.startsWith(join(binDir, 'ponder')), command);
  assert.equal(execFileSync('/bin/sh', ['-c', command], { encoding: 'utf8' }).trim(), `${job} completed`);

  // `cancelled` ends the wait without an answer, and the job goes on.
  const before = wire.lines.length;
  const dropped = wire.tool('ask', { question: 'Dropped [[stub prefill_s=20]]' });
  const running = await until(async () => (await get(home, '/v1/jobs?state=running')).jobs[0], 10, 'the ask runs');
  for (let twice = 0; twice < 2; ++twice)
    wire.send({ method: 'notifications/cancelled', params: { requestId: dropped.id } });
  assert.deepEqual((await wire.request('ping')).result, {});
  await new Promise(r => setTimeout(r, 300));
  assert.equal(wire.lines.length, before + 1, 'only the pong came');
  assert.equal((await get(home, `/v1/jobs/${running.job_id}`)).state, 'running');

  // A status that waits, and then the end of ponder-mcp by kill -9: the job is found again.
  wire.tool('status', { job_id: running.job_id, wait_s: 50 });
  wire.process.kill('SIGKILL');
  await wire.ended;
  const next = await new Wire(home, workspace).hello();
  const listed = success((await next.tool('status')).result).data.jobs;
  assert.ok(listed.some(j => j.job_id === running.job_id));
  let state = '';
  for (let i = 0; i < 10 && state !== 'completed'; ++i)
    state = success((await next.tool('status', { job_id: running.job_id, wait_s: 50 })).result).data.state;
  assert.equal(state, 'completed');
  const at = performance.now();
  next.process.stdin.end();
  await next.ended;
  assert.ok(performance.now() - at < 200, 'it ends with its input');
});
console.log('wire: all held');
