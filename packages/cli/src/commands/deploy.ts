import { spawn } from 'node:child_process';
import type { Deployment } from '@berth/sdk';
import { text, type Command, type Context, UsageError, exitCodes } from '../command.ts';
import { findAgent } from '../find-agent.ts';
import { printOne, printTable } from '../print.ts';

interface GitResult {
  code: number;
  stdout: string;
}

/** git's own lines go to standard error as they come; `capture` takes standard output instead. */
function git(args: string[], env: NodeJS.ProcessEnv, capture = false): Promise<GitResult> {
  return new Promise((resolve, reject) => {
    const child = spawn('git', args, {
      env,
      stdio: ['ignore', capture ? 'pipe' : 2, capture ? 'ignore' : 2],
    });
    let stdout = '';
    child.stdout?.setEncoding('utf8').on('data', (part: string) => (stdout += part));
    child.on('error', () => reject(new UsageError('git is not installed')));
    child.on('close', (code) => resolve({ code: code ?? 1, stdout: stdout.trim() }));
  });
}

/**
 * The key goes to git by a credential helper that reads it from the environment, so that it is in no command line,
 * no remote URL and no file of the repository.
 */
function gitEnvironment(context: Context): NodeJS.ProcessEnv {
  return {
    ...context.env,
    GIT_TERMINAL_PROMPT: '0',
    BERTH_GIT_PASSWORD: context.key,
    GIT_CONFIG_COUNT: '2',
    // The empty value clears helpers of the user's own, which would store the key.
    GIT_CONFIG_KEY_0: 'credential.helper',
    GIT_CONFIG_VALUE_0: '',
    GIT_CONFIG_KEY_1: 'credential.helper',
    GIT_CONFIG_VALUE_1:
      '!f() { test "$1" = get && echo username=berth && echo "password=$BERTH_GIT_PASSWORD"; }; f',
  };
}

export const deploy: Command = {
  name: 'deploy',
  usage: '<agent> [--ref REF] [--remote NAME] [--force]',
  summary: 'Push the current repository (or have an external one fetched) and deploy it',
  options: { ref: { type: 'string' }, remote: { type: 'string' }, force: { type: 'boolean' } },
  positionals: [1, 1],
  async run(context, [nameOrId], values) {
    const agent = await findAgent(context, nameOrId!);
    if (!agent.gitUrl.endsWith(`/git/${agent.id}.git`))
      return deployExternal(context, agent.id, text(values, 'ref'));

    const env = gitEnvironment(context);
    const inside = await git(['rev-parse', '--is-inside-work-tree'], env, true);
    if (inside.code !== 0)
      throw new UsageError('this is no git repository; run: git init && git add -A && git commit');
    const ref = text(values, 'ref') ?? 'HEAD';
    const commit = await git(
      ['rev-parse', '--verify', '--quiet', '--end-of-options', `${ref}^{commit}`],
      env,
      true,
    );
    if (commit.code !== 0) throw new UsageError(`there is no commit "${ref}"; commit something first`);

    const remote = text(values, 'remote') ?? 'berth';
    const existing = await git(['remote', 'get-url', remote], env, true);
    if (existing.code !== 0) await git(['remote', 'add', remote, agent.gitUrl], env);
    else if (existing.stdout !== agent.gitUrl) await git(['remote', 'set-url', remote, agent.gitUrl], env);

    const force = values['force'] ? ['--force'] : [];
    const pushed = await git(['push', ...force, remote, `${commit.stdout}:refs/heads/main`], env);
    if (pushed.code !== 0) return exitCodes.failed;
    const { items } = await context.client.deployments.list(agent.id, { limit: 20 });
    // What somebody else pushes at the same moment is not ours to show.
    const deployment = items.find((one) => one.commit === commit.stdout);
    if (deployment) show(context, deployment);
    else if (context.json) context.out('null\n');
    return exitCodes.ok;
  },
};

function show(context: Context, deployment: Deployment): void {
  printOne(context, deployment, [
    ['id', deployment.id],
    ['status', deployment.status],
    ['commit', deployment.commit],
    ['error', deployment.error],
  ]);
}

async function deployExternal(context: Context, agentId: string, ref: string | undefined): Promise<number> {
  const deployment = await context.client.deployments.create(agentId, ref === undefined ? {} : { ref });
  show(context, deployment);
  return deployment.status === 'ready' ? exitCodes.ok : exitCodes.failed;
}

export const deploymentCommands: Command[] = [
  {
    name: 'deployments list',
    usage: '<agent>',
    summary: 'List the deployments of an agent, newest first',
    positionals: [1, 1],
    async run(context, [nameOrId]) {
      const agent = await findAgent(context, nameOrId!);
      const { items } = await context.client.deployments.list(agent.id, { limit: 50 });
      printTable(
        context,
        items,
        ['id', 'status', 'active', 'commit', 'source', 'created', 'error'],
        items.map((d) => [
          d.id,
          d.status,
          d.id === agent.deploymentId ? 'yes' : '',
          d.commit?.slice(0, 12),
          d.source,
          d.createdAt,
          d.error,
        ]),
      );
    },
  },
  {
    name: 'deployments activate',
    usage: '<agent> <deployment id>',
    summary: 'Make an earlier deployment the active one (roll back)',
    positionals: [2, 2],
    async run(context, [nameOrId, deploymentId]) {
      const agent = await findAgent(context, nameOrId!);
      const deployment = await context.client.deployments.activate(agent.id, deploymentId!);
      show(context, deployment);
    },
  },
];
