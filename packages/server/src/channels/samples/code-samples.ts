import type { ChannelSetup } from '../../domain/ports/channel.ts';
import type { SampleInput } from '../../domain/ports/channel-sample.ts';
import { hmac } from '../signing.ts';
import { signStandard } from '../standard-webhooks.ts';
import { textOf } from '../specs.ts';
import { firstOf, hexOf, numberOf, post, secretOf, signedSample, type SampleKind } from './sample.ts';

const json = 'application/json';
const uuid = (input: SampleInput) =>
  hexOf(input)
    .padStart(32, '0')
    .replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
const iso = (input: SampleInput) => new Date(input.nowMs).toISOString();

/** The channel answers what names it, unless it answers all. */
function addressed(input: SampleInput, setup: ChannelSetup): string {
  const name = textOf(setup.settings, 'mention');
  return name === null || textOf(setup.settings, 'respondTo') === 'all'
    ? input.text
    : `@${name.replace(/^@/, '')} ${input.text}`;
}

const person = { login: 'sample', type: 'User' };

/** docs.github.com, "Webhook events and payloads". */
export const githubSamples: SampleKind = {
  names: () => ['github.issue_comment', 'github.issues', 'github.pull_request', 'github.ping'],
  make(input, setup) {
    const name = input.event.slice('github.'.length);
    const body = JSON.stringify(githubBody(name, input, setup));
    const mac = hmac('sha256', secretOf(setup, 'webhookSecret'), body).toString('hex');
    return signedSample(
      post(input, json, body, {
        'x-github-event': name,
        'x-github-delivery': uuid(input),
        'x-hub-signature-256': `sha256=${mac}`,
      }),
    );
  },
};

function githubBody(name: string, input: SampleInput, setup: ChannelSetup): Record<string, unknown> {
  const repository = { id: 1, full_name: firstOf(setup, 'repositories', 'octo-org/sample') };
  const common = { repository, sender: person };
  const text = addressed(input, setup);
  const times = { created_at: iso(input), updated_at: iso(input) };
  const id = numberOf(input);
  const thing = { number: 1, node_id: `sample-${id}`, title: 'Sample', user: person, body: text, ...times };
  switch (name) {
    case 'ping':
      return { ...common, zen: 'Design for failure.', hook_id: 1 };
    case 'issues':
      return { ...common, action: 'opened', issue: thing };
    case 'pull_request':
      return { ...common, action: 'opened', pull_request: thing };
    default: {
      const comment = { id: Number(id), node_id: `sample-${id}`, body: text, user: person, ...times };
      return { ...common, action: 'created', issue: { ...thing, node_id: 'sample' }, comment };
    }
  }
}

/** docs.gitlab.com, "Webhook events". */
export const gitlabSamples: SampleKind = {
  names: () => ['gitlab.note', 'gitlab.issue', 'gitlab.merge_request'],
  make(input, setup) {
    const name = input.event.slice('gitlab.'.length);
    const text = addressed(input, setup);
    const id = Number(numberOf(input));
    const said =
      name === 'note'
        ? { id, note: text, action: 'create', noteable_type: 'Issue', discussion_id: hexOf(input) }
        : { id, iid: 1, action: 'open', title: 'Sample', description: text };
    const body = JSON.stringify({
      object_kind: name,
      user: { id: 1, name: 'Sample', username: 'sample' },
      project: { id: 1, path_with_namespace: firstOf(setup, 'projects', 'sample/sample') },
      object_attributes: { ...said, updated_at: iso(input) },
      ...(name === 'note' ? { issue: { id: 1, iid: 1, title: 'Sample' } } : {}),
    });
    const secret = secretOf(setup, 'webhookSecret');
    const proof = secret.startsWith('whsec_')
      ? signStandard(uuid(input), Math.floor(input.nowMs / 1_000), body, secret)
      : { 'x-gitlab-token': secret };
    return signedSample(post(input, json, body, { 'idempotency-key': uuid(input), ...proof }));
  },
};

/** linear.app/developers, "Webhooks". */
export const linearSamples: SampleKind = {
  names: () => ['linear.comment', 'linear.issue'],
  make(input, setup) {
    const isComment = input.event === 'linear.comment';
    const text = addressed(input, setup);
    const teamId = firstOf(setup, 'teams', 'sample-team');
    const data = isComment
      ? { id: uuid(input), body: text, issueId: 'sample-issue', userId: 'sample', issue: { teamId } }
      : { id: uuid(input), title: 'Sample', description: text, teamId };
    const body = JSON.stringify({
      action: 'create',
      type: isComment ? 'Comment' : 'Issue',
      createdAt: iso(input),
      actor: { id: 'sample', type: 'user', name: 'Sample' },
      data: { ...data, updatedAt: iso(input) },
      webhookTimestamp: input.nowMs,
      webhookId: 'sample',
    });
    const mac = hmac('sha256', secretOf(setup, 'signingSecret'), body).toString('hex');
    return signedSample(post(input, json, body, { 'linear-delivery': uuid(input), 'linear-signature': mac }));
  },
};
