import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

// `npm run dev` passes requests on to a job manager: PENSTOCK_SERVER=http://127.0.0.1:8081 npm run dev
const server = process.env.PENSTOCK_SERVER ?? 'http://127.0.0.1:8081';

export default defineConfig({
  plugins: [svelte()],
  build: {
    outDir: '../penstock/dashboard/static',
    emptyOutDir: true,
    target: 'es2022',
    cssTarget: 'chrome123',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
  server: { proxy: { '/api': { target: server, ws: true }, '/ready': server } },
});
