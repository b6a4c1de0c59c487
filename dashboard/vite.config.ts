import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

// `npm run dev` passes requests on to a job manager: PENSTOCK_SERVER=http://127.0.0.1:8081 npm run dev
const server = process.env.PENSTOCK_SERVER ?? 'http://127.0.0.1:8081';

/** Whether a module is of use on most pages; charts, graphs and their libraries are not. */
function isCommon(id: string): boolean {
  if (/(Chart|Graph)\.svelte|[\\/]graph[\\/]|uplot|dagre/.test(id)) return false;
  return /[\\/]src[\\/](lib|components)[\\/]|[\\/]node_modules[\\/]/.test(id);
}

export default defineConfig({
  plugins: [svelte()],
  build: {
    outDir: '../penstock/dashboard/static',
    emptyOutDir: true,
    target: 'es2022',
    cssTarget: 'chrome123',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // One style sheet, and one file with what pages share: many small ones wait for each other.
    cssCodeSplit: false,
    rolldownOptions: { output: { codeSplitting: { groups: [{ name: 'common', test: isCommon }] } } },
  },
  server: { proxy: { '/api': { target: server, ws: true }, '/ready': server } },
});
