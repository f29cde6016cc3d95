import { AgentCard, canonicalizeAgentCard } from '@a2a-js/sdk';
import { ServerCallContext } from '@a2a-js/sdk/server';
import { duplicateInterfacesForLegacy } from '@a2a-js/sdk/compat/v0_3';
import { LegacyRestTransportHandler } from '@a2a-js/sdk/compat/v0_3/server';
import type { A2ARequestHandler } from '@a2a-js/sdk/server';
import type { A2aService } from '../../services/a2a-api.ts';
import type { PublicCall } from '../hosts/host-edge.ts';
import { inputModes, outputModes } from './parts.ts';
import { canonicalJson } from './canonical-json.ts';
import { REST_PATH, RPC_PATH } from './paths.ts';

/** An agent and where it is reached. */
export type Described = Pick<PublicCall, 'agent' | 'origin' | 'grpcTarget' | 'a2aCapabilities'>;

/** What an agent tells of itself (A2A 1.0, section 4.4.1). */
export function agentCard({ agent, origin, grpcTarget, a2aCapabilities }: Described): AgentCard {
  const description = agent.description.trim() || `${agent.name}, an agent.`;
  const supportedInterfaces = duplicateInterfacesForLegacy(
    [
      { url: origin + RPC_PATH, protocolBinding: 'JSONRPC', tenant: '', protocolVersion: '1.0' },
      { url: origin + REST_PATH, protocolBinding: 'HTTP+JSON', tenant: '', protocolVersion: '1.0' },
      ...(grpcTarget === null
        ? []
        : [{ url: grpcTarget, protocolBinding: 'GRPC', tenant: '', protocolVersion: '1.0' }]),
    ],
    ['JSONRPC', 'HTTP+JSON', 'GRPC'],
  );
  return {
    name: agent.name,
    description,
    supportedInterfaces,
    provider: undefined,
    // It changes whenever the agent itself does.
    version: agent.deploymentId ?? '1',
    capabilities: {
      streaming: a2aCapabilities.includes('streaming'),
      pushNotifications: a2aCapabilities.includes('pushNotifications'),
      extensions: [],
      extendedAgentCard: a2aCapabilities.includes('extendedAgentCard'),
    },
    securitySchemes: {
      bearer: {
        scheme: {
          $case: 'httpAuthSecurityScheme',
          value: { description: 'An API key that may use this agent.', scheme: 'Bearer', bearerFormat: '' },
        },
      },
    },
    securityRequirements: [{ schemes: { bearer: { list: [] } } }],
    defaultInputModes: [...inputModes],
    defaultOutputModes: [...outputModes],
    skills: [
      {
        id: 'chat',
        name: agent.name,
        description,
        tags: ['chat'],
        examples: [],
        inputModes: [],
        outputModes: [],
        securityRequirements: [],
      },
    ],
    signatures: [],
  };
}

/** For callers with a key: what else a user of the agent may want to know. */
export function extendedCard(described: Described): AgentCard {
  const card = agentCard(described);
  card.skills[0]!.tags.push(`model:${described.agent.model}`);
  return card;
}

/** The card as JSON of a version, signed. */
export async function cardJson(
  card: AgentCard,
  version: '1.0' | '0.3',
  jku: string,
  signer: Pick<A2aService, 'signCard'>,
): Promise<Record<string, unknown>> {
  const json =
    version === '1.0' ? (AgentCard.toJSON(card) as Record<string, unknown>) : await legacyCard(card);
  // What is signed is the card as the schema of its version knows it (A2A 1.0, section 8.4.1).
  const payload = version === '1.0' ? canonicalizeAgentCard(card) : canonicalJson(json);
  const signature = await signer.signCard(payload, { typ: 'JOSE', jku });
  return { ...json, signatures: [signature] };
}

/**
 * The card as 0.3 knows it, with the interfaces of 1.0 beside: a client that has not said its version finds what it can
 * speak either way.
 */
export async function legacyCard(card: AgentCard): Promise<Record<string, unknown>> {
  const source = { getAuthenticatedExtendedAgentCard: async () => card } as unknown as A2ARequestHandler;
  const handler = new LegacyRestTransportHandler(source);
  const legacy = await handler.getAuthenticatedExtendedAgentCard(new ServerCallContext());
  const { supportedInterfaces, securityRequirements, capabilities } = AgentCard.toJSON(card) as Record<
    string,
    unknown
  >;
  // What 1.0 calls otherwise, such as the extended card, is declared by both names.
  return {
    ...legacy,
    capabilities: { ...legacy.capabilities, ...(capabilities as object) },
    supportedInterfaces,
    securityRequirements,
  };
}
