// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "files.hpp"

namespace benchmarks::checkpoints {

std::unique_ptr<CountedFiles> make_files(bool to_disk) { return std::make_unique<CountedFiles>(to_disk); }

}  // namespace benchmarks::checkpoints
