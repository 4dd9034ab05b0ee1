// SPDX-License-Identifier: Apache-2.0
// expected-error: run(mesh, f): f is called with the rank, which it takes by reference: [](auto& rank)
#include <shardkit/backend/threads/run.hpp>  // with the mesh, which is deduced

void start() {
#ifdef REJECT
    shardkit::threads::run(shardkit::DeviceMesh{4}, [](auto) {});
#else
    shardkit::threads::run(shardkit::DeviceMesh{4}, [](auto&) {});
#endif
}
