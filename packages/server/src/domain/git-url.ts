import { invalid } from './errors.ts';
import { limits } from './limits.ts';

/** An https URL of a repository, as the caller wrote it. Reachability and address ranges are checked elsewhere. */
export function readGitUrl(path: string, text: string): string {
  if (text.length > limits.gitUrlChars)
    throw invalid(path, `must have at most ${limits.gitUrlChars} characters.`);
  // What a URL parser would silently drop or repair must not reach git's own parser in another form.
  const url = /^[\x21-\x7e]+$/.test(text) && URL.canParse(text) ? new URL(text) : null;
  if (!url || url.protocol !== 'https:' || !/^https:\/\/[^/\\]/i.test(text)) {
    throw invalid(
      path,
      'must be an https URL of a git repository, such as https://example.com/team/agent.git.',
    );
  }
  if (url.username !== '' || url.password !== '' || text.slice(8).split('/')[0]!.includes('@')) {
    throw invalid(
      path,
      'must not hold credentials; store a token as the secret GIT_TOKEN of the agent instead.',
    );
  }
  if (url.hash !== '' || text.includes('#')) throw invalid(path, 'must not have a fragment (#…).');
  return text;
}
