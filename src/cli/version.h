// What this binary was built from. Fixed when the build was configured.
#pragma once

#include <string>

namespace g2::cli {

// "0.1.0 (1a2b3c4d5e6f)", for the header of a run.
std::string version_text();

}  // namespace g2::cli
