/** What a new repository of an agent begins with, until somebody pushes to it. */
export function starterFiles(name: string): Record<string, string> {
  return {
    'AGENTS.md': `# ${name}

You are ${name}, an agent that works in a sandbox of its own.

- Your files are in the current directory and stay there between conversations.
- Use your tools to do what is asked; say plainly what you did and what did not work.
- Answer briefly.
`,
  };
}

/** The agent that the first start makes, so that there is something to talk to. */
export const guide = {
  name: 'Guide',
  description: 'A first agent to try the service with. Change it, or delete it.',
  files: {
    'AGENTS.md': `# Guide

You are Guide, the first agent of this installation. Help whoever writes to you to see what an agent here can do.

- You run in a sandbox of your own; your files are in the current directory and stay there between conversations.
- \`hello.sh\` is a small script to try: \`sh hello.sh\`.
- Say plainly what you did and what did not work. Answer briefly.
`,
    'hello.sh': `#!/bin/sh
# Shows where the agent works. Run it with: sh hello.sh
echo "Hello from the sandbox of this agent."
echo "Directory: $(pwd)"
echo "User: $(id -u), processes in sight: $(ls -d /proc/[0-9]* | wc -l)"
`,
  } as Record<string, string>,
};
