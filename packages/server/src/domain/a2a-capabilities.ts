/** What the cards of agents declare by A2A (1.0, section 4.4.3), unless the operator leaves some of it out. */
export const a2aCapabilities = ['streaming', 'pushNotifications', 'extendedAgentCard'] as const;

export type A2aCapability = (typeof a2aCapabilities)[number];
