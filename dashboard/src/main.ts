import './app.css';
import 'uplot/dist/uPlot.min.css';
import { mount } from 'svelte';
import App from './App.svelte';
import { sendEarly } from './lib/early';
import { router } from './lib/router.svelte';
import { pageOf } from './routes';

// Both take a while: neither waits until the other, or the page around it, is there.
sendEarly(router.here.parts);
void pageOf(router.here.parts)?.();

mount(App, { target: document.getElementById('app')! });
