// Clang 19 asks each extension that it was built with for its passes. Debian builds it with Polly, whose archive is a package
// apart and which Saccade's kernels do not use.
#include <llvm/Passes/PassPlugin.h>

llvm::PassPluginLibraryInfo getPollyPluginInfo();
llvm::PassPluginLibraryInfo getPollyPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "no Polly", LLVM_VERSION_STRING, [](llvm::PassBuilder&) {}};
}
