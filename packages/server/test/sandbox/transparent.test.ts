import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { test, type TestContext } from 'node:test';
import { canBeEntered, openEveryAddress, transparentPrograms } from '../../src/sandbox/transparent.ts';
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

/** As bwrap without root does it, a word of its input for each step: a network in a user namespace, the loopback device, the users. */
const inSteps = `
$| = 1;
my ($user, $group) = ($<, $( + 0);
syscall(${{ x64: 272, arm64: 97 }[process.arch as string]}, 0x50000000) == 0 or die "unshare: $!";
print "apart\n"; <STDIN>;
socket(my $s, 2, 2, 0) or die $!;
my $up = pack("a16 s x22", "lo", 1);
ioctl($s, 0x8914, $up) or die "up: $!";
print "loopback\n"; <STDIN>;
for (["uid_map", "0 $user 1"], ["setgroups", "deny"], ["gid_map", "0 $group 1"]) {
  open(my $f, ">", "/proc/self/$$_[0]") or die $!;
  syswrite($f, $$_[1]) or die "$$_[0]: $!";
}
print "mapped\n"; <STDIN>;`;

test('a sandbox without root is entered only once its users are mapped, which comes after its loopback device', async (t) => {
  const missing = transparentPrograms(false);
  if (missing.length > 0) return t.skip(missing.join(' '));
  const child = spawn('/usr/bin/perl', ['-MSocket', '-e', inSteps], { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const step = async (): Promise<unknown> => (await lines.next()).value;
  try {
    const pid = child.pid!;
    assert.equal(await step(), 'apart');
    assert.equal(canBeEntered(pid, false), false);
    child.stdin.write('\n');
    assert.equal(await step(), 'loopback');
    assert.equal(canBeEntered(pid, true), true);
    assert.equal(canBeEntered(pid, false), false);
    child.stdin.write('\n');
    assert.equal(await step(), 'mapped');
    assert.equal(canBeEntered(pid, false), true);
    await openEveryAddress(pid, false);
  } finally {
    child.kill('SIGKILL');
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
