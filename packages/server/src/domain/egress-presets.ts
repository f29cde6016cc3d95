/** Hosts of well-known registries, so that nobody has to find them out. Each is what the registry itself names. */
export interface EgressPreset {
  title: string;
  hosts: readonly string[];
  /** Where the list was read. */
  source: string;
}

export const egressPresets: Readonly<Record<string, EgressPreset>> = {
  npm: {
    title: 'npm and Yarn packages',
    hosts: ['registry.npmjs.org', 'registry.yarnpkg.com'],
    source: 'https://docs.npmjs.com/cli/using-npm/registry',
  },
  pypi: {
    title: 'Python packages',
    hosts: ['pypi.org', 'files.pythonhosted.org'],
    source: 'https://docs.pypi.org/api/',
  },
  debian: {
    title: 'Debian packages',
    hosts: ['deb.debian.org', 'security.debian.org'],
    source: 'https://www.debian.org/mirror/list',
  },
  ubuntu: {
    title: 'Ubuntu packages',
    hosts: ['archive.ubuntu.com', 'security.ubuntu.com', 'ports.ubuntu.com'],
    source: 'https://help.ubuntu.com/community/Repositories/Ubuntu',
  },
  alpine: {
    title: 'Alpine packages',
    hosts: ['dl-cdn.alpinelinux.org'],
    source: 'https://wiki.alpinelinux.org/wiki/Repositories',
  },
  crates: {
    title: 'Rust crates and toolchains',
    hosts: ['crates.io', 'index.crates.io', 'static.crates.io', 'static.rust-lang.org'],
    source: 'https://doc.rust-lang.org/cargo/reference/registries.html',
  },
  go: {
    title: 'Go modules',
    hosts: ['proxy.golang.org', 'sum.golang.org'],
    source: 'https://go.dev/ref/mod#environment-variables',
  },
  rubygems: {
    title: 'Ruby gems',
    hosts: ['rubygems.org', 'index.rubygems.org'],
    source: 'https://guides.rubygems.org/rubygems-org-api/',
  },
  maven: {
    title: 'Maven Central',
    hosts: ['repo.maven.apache.org', 'repo1.maven.org'],
    source: 'https://central.sonatype.org/consume/consume-apache-maven/',
  },
  nuget: {
    title: '.NET packages',
    hosts: ['api.nuget.org'],
    source: 'https://learn.microsoft.com/nuget/api/overview',
  },
  packagist: {
    title: 'PHP packages',
    hosts: ['packagist.org', 'repo.packagist.org'],
    source: 'https://packagist.org/apidoc',
  },
  node: {
    title: 'Node releases and headers',
    hosts: ['nodejs.org'],
    source: 'https://nodejs.org/dist/',
  },
  github: {
    title: 'GitHub: git over https, the API, archives, raw files and releases',
    hosts: [
      'github.com',
      'api.github.com',
      'codeload.github.com',
      'uploads.github.com',
      '*.githubusercontent.com',
    ],
    source: 'https://api.github.com/meta',
  },
  gitlab: {
    title: 'GitLab.com: git over https and the API',
    hosts: ['gitlab.com'],
    source: 'https://docs.gitlab.com/user/gitlab_com/',
  },
};
