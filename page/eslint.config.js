import js from "@eslint/js";

export default [
  js.configs.recommended,
  {
    languageOptions: { ecmaVersion: 2023, sourceType: "script" },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      // The scripts of a page are one program: which names there are is what the type checker knows.
      "no-undef": "off",
      "no-redeclare": "off",
      "no-unused-vars": ["error", { vars: "local", argsIgnorePattern: "^_" }],
      "no-shadow": ["error", { builtinGlobals: false }],
      "no-var": "error",
      eqeqeq: ["error", "always", { null: "ignore" }],
      "no-implicit-coercion": "error",
      "no-param-reassign": "error",
      "no-eval": "error",
    },
  },
];
