// A daemon of the test's own and what the tests have in common. Run as TEST.mjs BIN_DIR [...].
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, mkdirSync, readFileSync, rmSync, realpathSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

export const binDir = resolve(process.argv[2]);
export const ponderMcp = join(binDir, 'ponder-mcp');
export const terminal = ['completed', 'incomplete', 'failed', 'cancelled', 'interrupted', 'expired'];

/** GET over the daemon's socket; the parsed body. */
export function get(home, path) {
  return new Promise((done, failed) => {
    http.get({ socketPath: join(home, 'ponderd.sock'), path }, answer => {
      let text = '';
      answer.on('data', d => (text += d)).on('end', () => {
        try { done(JSON.parse(text)); } catch (e) { failed(e); }
      });
    }).on('error', failed);
  });
}

/** Calls `condition` until it is true, at most `seconds`. */
export async function until(condition, seconds, what) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > end) assert.fail(`not within ${seconds} s: ${what}`);
    await new Promise(r => setTimeout(r, 20));
  }
}

/** Runs `test({home, workspace})` with a stub daemon, and cleans up whatever happens. */
export async function withDaemon(test) {
  const home = mkdtempSync(join(realpathSync(tmpdir()), 'ponder-mcp-e2e-'));
  const workspace = join(home, 'workspace');
  mkdirSync(workspace);
  const daemon = spawn(join(binDir, 'ponderd'), ['--home', home, '--port', '0', '--engine', 'stub'],
    { stdio: ['ignore', 'ignore', 'pipe'] });
  let log = '';
  daemon.stderr.on('data', d => (log += d));
  const ended = new Promise(r => daemon.on('exit', r));
  try {
    await until(async () => ['ready', 'busy'].includes((await get(home, '/health').catch(() => ({}))).state), 30,
      'the daemon is ready');
    await test({ home, workspace });
  } catch (error) {
    console.error(`--- the daemon's log\n${log.slice(-4000)}`);
    throw error;
  } finally {
    daemon.kill('SIGTERM');
    const forced = setTimeout(() => daemon.kill('SIGKILL'), 10_000);
    await ended;
    clearTimeout(forced);
    rmSync(home, { recursive: true, force: true });
  }
}

/** A successful result: one text block that ends with "---" and a status line, and the structured half. */
export function success(result) {
  assert.ok(!result.isError, `no error: ${JSON.stringify(result).slice(0, 600)}`);
  assert.equal(result.content.length, 1);
  assert.equal(result.content[0].type, 'text');
  const lines = result.content[0].text.split('\n');
  assert.equal(lines.at(-2), '---', result.content[0].text);
  assert.ok(result.structuredContent);
  return { text: result.content[0].text, data: result.structuredContent };
}

/** An error result: one text block and nothing else. */
export function failure(result, ...parts) {
  assert.equal(result.isError, true, JSON.stringify(result).slice(0, 600));
  assert.equal(result.content.length, 1);
  assert.equal(result.structuredContent, undefined);
  const text = result.content[0].text;
  assert.ok([...text].length <= 8000);
  for (const part of parts) assert.ok(text.includes(part), `${JSON.stringify(part)} is in: ${text}`);
  return text;
}

/** What every client does, through `call(name, arguments)`: the whole life of asks and jobs. */
export async function lifeOfJobs(call, { workspace }) {
  const health = success(await call('health', { probe: true }));
  assert.ok(['ready', 'busy'].includes(health.data.state));
  assert.equal(health.data.probe.ok, true, JSON.stringify(health.data.probe));

  const asked = success(await call('ask', { question: 'Say it [[stub tokens=5 think=3 text=marmalade]]' }));
  assert.equal(asked.data.state, 'completed');
  assert.ok(asked.data.answer.includes('marmalade'));
  assert.ok(asked.text.startsWith(asked.data.answer));
  assert.ok(asked.text.includes(asked.data.job_id));

  const submitted = success(await call('submit', {
    task: 'Write it [[stub tokens=4000 think=50 text=brick rate=4000]]', label: 'bricks', effort: 'low' }));
  const id = submitted.data.job_id;
  assert.match(id, /^[a-z0-9]{26}$/);
  assert.ok(submitted.text.includes(`wait ${id}`));
  assert.ok(submitted.data.tokens.prompt > 0);

  let state = submitted.data.state;
  for (let i = 0; i < 20 && !terminal.includes(state); ++i)
    state = success(await call('status', { job_id: id, wait_s: 20 })).data.state;
  assert.equal(state, 'completed');

  let text = '', pages = 0;
  for (let offset = 0; offset !== null; ++pages) {
    const page = success(await call('result', { job_id: id, offset })).data;
    text += page.answer;
    offset = page.next_offset;
    assert.equal(page.truncated, offset !== null);
    if (offset === null) assert.equal([...text].length, page.total_chars);
  }
  assert.ok(pages > 1, 'the answer is longer than a page');
  assert.ok(text.includes('brick'));

  const written = success(await call('result', { job_id: id, out_file: 'bricks.txt' }));
  assert.equal(written.data.out_file, join(workspace, 'bricks.txt'));
  assert.equal(readFileSync(join(workspace, 'bricks.txt'), 'utf8'), text);

  const long = success(await call('submit', { task: 'Take long [[stub prefill_s=60]]' })).data.job_id;
  failure(await call('result', { job_id: long }), long, 'Next call: status');
  assert.equal(success(await call('cancel', { job_id: long })).data.state, 'cancelled');
  assert.equal(success(await call('cancel', { job_id: long })).data.state, 'cancelled');
  failure(await call('result', { job_id: long }), long, 'cancelled', 'Partial answer');

  const listed = success(await call('status', {})).data.jobs.map(job => job.job_id);
  for (const each of [asked.data.job_id, id, long]) assert.ok(listed.includes(each), `${each} is listed`);
  const both = success(await call('status', { job_ids: [id, long] })).data.jobs;
  assert.deepEqual(both.map(job => job.state), ['completed', 'cancelled']);

  failure(await call('ask', { question: 'x', effort: 'extreme' }), '"xhigh"');
  failure(await call('ask', { question: 'x', files: ['/etc/passwd'] }), '/etc/passwd');
  failure(await call('status', { job_id: 'z'.repeat(26) }), 'z'.repeat(26));
  failure(await call('ask', { question: '[[stub tokens=500 fault=loop]]' }), 'incomplete', 'repetition', 'reasoning');
}
