#include "agent/cli/cli.h"

int main(int argc, char** argv) { return evalcar::cli::run_cli(argc, argv); }
