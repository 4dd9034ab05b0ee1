// SPDX-License-Identifier: Apache-2.0
// expected-error: run(mesh, f): the first argument is a mesh, as DeviceMesh<4>{} or DeviceMesh{number_of_ranks}
#include "model.hpp"

#include <shardkit/backend/threads/run.hpp>

void start() {
#ifdef REJECT
    sk::threads::run(4, [](auto&) {});
#else
    sk::threads::run(sk::DeviceMesh{4}, [](auto&) {});
#endif
}
