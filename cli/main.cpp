#include "cli/app.h"

int main(int argc, char** argv) { return saccade::cli::run_app(argc, argv); }
