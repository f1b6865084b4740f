// Names of the dialects as people read them.

export const DIALECTS = {
  native: "Native", pingpong: "PingPong", memodb: "MemoDB", powerhose: "Powerhose", controller: "Worker-Controller",
  majordomo: "Majordomo", http: "HTTP",
};

/** @param {string} dialect */
export const dialectName = (dialect) => Object.hasOwn(DIALECTS, dialect) ? DIALECTS[dialect] : dialect;
