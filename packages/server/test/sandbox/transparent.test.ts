import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { fixture, type Fixture } from './fixture.ts';

/** Skips the test where it is not. */
async function isPossible({ driver }: Fixture, t: TestContext): Promise<boolean> {
  const { transparentEgress } = await driver.capabilities();
  if (!transparentEgress) t.skip('a program is missing, or the host does not let it be set up');
  return transparentEgress;
}

test('with transparent egress every IPv4 address and low port leads to the sandbox itself, and nowhere else', async (t) => {
  const fx = fixture();
  try {
    if (!(await isPossible(fx, t))) return;
    const listen =
      'perl -MSocket -e \'socket(S, PF_INET, SOCK_STREAM, 6); bind(S, sockaddr_in(80, INADDR_ANY)) or die $!; listen(S, 5); print "up\\n"; $| = 1; print ""; my $a = accept(C, S); print join(".", unpack("C4", (sockaddr_in(getsockname(C)))[1])), "\\n"\' & ';
    const { stdout, stderr } = await fx.run(
      `${listen} until bash -c 'exec 3<>/dev/tcp/93.184.216.34/80' 2>/dev/null; do sleep 0.1; done; wait; ip link add x type dummy; ip route del local default dev lo; bash -c 'exec 3<>/dev/tcp/169.254.169.254/81'`,
      { transparentEgress: true },
    );
    assert.equal(stdout, 'up\n93.184.216.34\n');
    assert.equal(stderr.match(/not permitted/g)?.length, 2);
    assert.match(stderr, /Connection refused/);
  } finally {
    await fx.close();
  }
});

test('transparent egress is set up with each of many starts, however early it is told of the first process', async (t) => {
  const fx = fixture();
  try {
    if (!(await isPossible(fx, t))) return;
    for (let start = 0; start < 40; start += 1)
      assert.equal((await fx.run('echo up', { transparentEgress: true })).stdout, 'up\n');
  } finally {
    await fx.close();
  }
});

test('without it no address leads anywhere and low ports are closed', async () => {
  const fx = fixture();
  try {
    const { stderr } = await fx.run(
      `bash -c 'exec 3<>/dev/tcp/93.184.216.34/80'; perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 6); bind(S, sockaddr_in(80, INADDR_ANY)) or die $!'`,
    );
    assert.match(stderr, /Network is unreachable/);
    assert.match(stderr, /Permission denied/);
  } finally {
    await fx.close();
  }
});
