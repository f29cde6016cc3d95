import type { ContentBlock } from '@agentclientprotocol/sdk';
import { invalidParams } from './errors.ts';

/**
 * A prompt's blocks as the text of a message (Agent Client Protocol v1, `session/prompt`). A link stands in the text
 * where the client put it; what it leads to lies on the client's machine, or behind the agent's egress policy.
 */
export function promptText(blocks: ContentBlock[]): string {
  if (blocks.length === 0) throw invalidParams('prompt', 'must have at least one block.');
  return blocks.map(blockText).join('');
}

function blockText(block: ContentBlock, index: number): string {
  switch (block.type) {
    case 'text':
      return block.text;
    case 'resource_link':
      return `[${block.title ?? block.name}](${block.uri})`;
    case 'resource': {
      const { resource } = block;
      if ('text' in resource) return `\n<context ref="${resource.uri}">\n${resource.text}\n</context>\n`;
      throw invalidParams(`prompt.${index}`, 'must be text; embedded files are not taken.');
    }
    default:
      throw invalidParams(
        `prompt.${index}`,
        `of the type ${block.type} is not taken; see promptCapabilities.`,
      );
  }
}
