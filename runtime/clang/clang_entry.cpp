// Clang and LLVM as a library: source text in, relocatable object out, everything in memory.
#include "runtime/clang/clang_entry.h"

#include <clang/Basic/Diagnostic.h>
#include <clang/Basic/FileManager.h>
#include <clang/Basic/Version.h>
#include <clang/CodeGen/CodeGenAction.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/CompilerInvocation.h>
#include <clang/Frontend/TextDiagnosticPrinter.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/VirtualFileSystem.h>
#include <llvm/Support/raw_ostream.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace {

constexpr const char* kHeaderRoot = "/saccade/";
constexpr const char* kSourceName = "/saccade/kernel.cpp";

void initialise_x86() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeX86AsmParser();
  });
}

llvm::IntrusiveRefCntPtr<llvm::vfs::InMemoryFileSystem> file_system_of(const SaccadeClangInput& input) {
  auto files = llvm::makeIntrusiveRefCnt<llvm::vfs::InMemoryFileSystem>();
  for (std::size_t i = 0; i < input.header_count; ++i) {
    const SaccadeClangHeader& header = input.headers[i];
    files->addFile(std::string(kHeaderRoot) + header.name, 0,
                   llvm::MemoryBuffer::getMemBufferCopy(llvm::StringRef(header.text, header.size)));
  }
  files->addFile(kSourceName, 0,
                 llvm::MemoryBuffer::getMemBufferCopy(llvm::StringRef(input.source, input.source_size)));
  return files;
}

std::vector<const char*> arguments_of(const SaccadeClangInput& input) {
  std::vector<const char*> arguments(input.arguments, input.arguments + input.argument_count);
  arguments.insert(arguments.end(), {"-I", "/saccade", kSourceName});
  return arguments;
}

/// Runs the compiler; the object goes to `object`, diagnostics to `log`.
bool compile(const SaccadeClangInput& input, llvm::SmallVectorImpl<char>& object, std::string& log) {
  initialise_x86();
  llvm::raw_string_ostream log_stream(log);
  auto diagnostic_options = llvm::makeIntrusiveRefCnt<clang::DiagnosticOptions>();
  clang::TextDiagnosticPrinter printer(log_stream, diagnostic_options.get());

  clang::CompilerInstance compiler;
  {
    clang::DiagnosticsEngine argument_diagnostics(llvm::makeIntrusiveRefCnt<clang::DiagnosticIDs>(), diagnostic_options,
                                                  &printer, /*ShouldOwnClient=*/false);
    auto invocation = std::make_shared<clang::CompilerInvocation>();
    if (!clang::CompilerInvocation::CreateFromArgs(*invocation, arguments_of(input), argument_diagnostics))
      return false;
    // Freeing the AST and the module of a process that goes on living is wanted, unlike in the clang driver's child.
    invocation->getFrontendOpts().DisableFree = false;
    invocation->getCodeGenOpts().DisableFree = false;
    compiler.setInvocation(std::move(invocation));
  }
  compiler.createDiagnostics(&printer, /*ShouldOwnClient=*/false);
  compiler.setFileManager(new clang::FileManager(clang::FileSystemOptions(), file_system_of(input)));
  compiler.setVerboseOutputStream(log_stream);  // else "1 error generated." goes to stderr
  compiler.setOutputStream(std::make_unique<llvm::raw_svector_ostream>(object));
  clang::EmitObjAction action;
  return compiler.ExecuteAction(action);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int saccade_clang_compile(const SaccadeClangInput* input,
                                                                            void* context, SaccadeClangSink object,
                                                                            SaccadeClangSink log) {
  llvm::SmallVector<char, 0> code;
  std::string text;
  const bool ok = compile(*input, code, text);
  if (!text.empty()) log(context, text.data(), text.size());
  if (!ok || code.empty()) return 1;
  object(context, code.data(), code.size());
  return 0;
}

extern "C" __attribute__((visibility("default"))) const char* saccade_clang_version() {
  static const std::string version = clang::getClangFullVersion();
  return version.c_str();
}
