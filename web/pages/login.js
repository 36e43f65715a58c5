// Login with a token of the daemon.

import { html, useEffect, useRef, useState } from '../lib/html.js';
import { post, session } from '../lib/api.js';
import { Failure } from '../lib/dialog.js';

export function Login() {
  const [token, setToken] = useState('');
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(false);
  const input = useRef(/** @type {HTMLInputElement|null} */ (null));
  useEffect(() => input.current?.focus(), []);
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (busy) return;
    setBusy(true);
    setProblem(null);
    try {
      session.value = await post('/console/login', { token });
    } catch (failure) {
      setProblem(failure);
      setBusy(false);
      input.current?.select();
    }
  };
  return html`<main class="login"><form onSubmit=${submit}>
    <h1>Stripewise</h1>
    <div class="field"><label for="token">Token</label>
      <input id="token" ref=${input} type="password" autocomplete="current-password" value=${token}
        aria-describedby="token-help" onInput=${(/** @type {any} */ event) => setToken(event.target.value)} />
      <p class="help" id="token-help">From the file <code>http.tokens</code> in the daemon's state folder. Its role decides what can be done here.</p></div>
    <${Failure} problem=${problem} />
    <div class="buttons"><button class="primary" disabled=${busy || !token}>Log in</button></div>
  </form></main>`;
}
