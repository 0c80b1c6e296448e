// Drives Chromium over the page of docs/http.md; every line of what it prints is one thing that a person saw.
import { existsSync, readFileSync, unlinkSync, writeFileSync } from "node:fs";
import { chromium } from "playwright-core";

const [, , url, chrome, html, profile, gate] = process.argv;
const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"];
const context = await chromium.launchPersistentContext(profile, {
  executablePath: chrome, headless: true, args: [...args, "--disable-component-update", "--disable-sync"],
});
try {
  const open = async (agent) => {
    const page = await context.newPage();
    page.on("pageerror", (error) => { throw error; });
    // From the server's own origin, as a reverse proxy would serve it.
    const body = readFileSync(html, "utf8").replace(/data-agent="[^"]*"/, `data-agent="${agent}"`);
    await page.route(`${url}/chat.html`, (route) => route.fulfill({ contentType: "text/html", body }));
    await page.goto(`${url}/chat.html`);
    return page;
  };
  const send = async (page, text) => {
    await page.fill("#say input", text);
    await page.click("#say button");
  };

  const story = await open("story");
  await send(story, "Tell me a story");
  await story.getByText("Once").waitFor();
  await story.reload();
  writeFileSync(gate, ""); // the model was held in the middle of its text
  await story.locator("#chat p").nth(4).getByText("a graph.").waitFor();
  console.log((await story.locator("#chat p").allTextContents()).join(" "));

  const form = await open("form");
  await send(form, "A leave, please");
  await form.fill("#chat input[name=days]", "-2");
  await form.fill("#chat input[name=kind]", "sick");
  await form.click("#chat button[value=send]");
  await form.getByText(/less than|at least|minimum/).waitFor();
  console.log("refused");
  await form.fill("#chat input[name=days]", "2");
  await form.click("#chat button[value=send]");
  await form.getByText("answered", { exact: true }).waitFor();
  console.log("answered");

  const react = await open("react");
  await send(react, "Show me the folder");
  await react.getByText('"echo hi"').waitFor();
  await react.reload();
  await react.click("#chat button[value=approve]");
  await react.getByText("Done.").waitFor();
  console.log("approved");
} finally {
  await context.close();
}
