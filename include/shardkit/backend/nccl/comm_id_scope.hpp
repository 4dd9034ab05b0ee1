// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string>

#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::nccl::detail {

/// Sets NCCL_COMM_ID to `endpoint` until the end of the scope: under it ncclGetUniqueId gives the same id in every
/// process, and rank 0 of a communicator made from that id listens at the endpoint (read in src/bootstrap.cc and
/// src/init.cc of NCCL 2.28.9, where both look at the variable when they are called). One that is set already stays.
/// No other thread may read or write the environment meanwhile.
class CommIdScope {
  public:
    /// @throws CommError when the environment has no room
    explicit CommIdScope(const std::string& endpoint, SourceLocation where) {
        if (std::getenv(name) != nullptr) { return; }
        if (::setenv(name, endpoint.c_str(), 1) != 0) {
            throw CommError("nccl", "Launcher", shardkit::detail::concat("setenv of ", name, " failed"), where);
        }
        ours_ = true;
    }
    CommIdScope(const CommIdScope&) = delete;
    CommIdScope& operator=(const CommIdScope&) = delete;
    ~CommIdScope() {
        if (ours_) { ::unsetenv(name); }
    }

    static constexpr const char* name = "NCCL_COMM_ID";

  private:
    bool ours_ = false;
};

}  // namespace shardkit::nccl::detail
