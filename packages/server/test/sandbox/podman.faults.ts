import { engineSuite } from './engine-suite.ts';
import { podmanErrors } from './podman-errors.ts';

// All that docker.test.ts does with Docker and runc; a container of Podman takes four times as long.
engineSuite('podman', [{ runtime: 'runc', column: 'Podman, runc', skip: false }], 'Podman, runc');
podmanErrors();
