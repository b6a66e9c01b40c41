package clean

const A = 1
