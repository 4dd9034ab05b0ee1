// SPDX-License-Identifier: Apache-2.0
// The NCCL engine built with the newest header, in a process whose library is NCCL 2.18 and has nothing that is
// newer: it loads, trains, and refuses by name what the library lacks.
#include <cstdio>
#include <exception>
#include <string>

#include <shardkit/backend/nccl/world.hpp>

#include "standin.hpp"

namespace {

namespace nccl = shardkit::nccl;

int failures = 0;

/// A World of one rank with these options; the text of its error.
std::string made(const nccl::Options& options) {
    try {
        nccl::World world(nccl::UniqueId::create(), 1, 0, options);
        const auto buffer = world.state().buffer(400);
        world.finish();
    } catch (const std::exception& error) { return error.what(); }
    return "";
}
void expect(const nccl::Options& options, const std::string& refusal) {
    const std::string text = made(options);
    if (refusal.empty() ? text.empty() : text.find(refusal) != std::string::npos) { return; }
    std::printf("expected '%s', got '%s'\n", refusal.c_str(), text.c_str());
    ++failures;
}

}  // namespace

int main() {
    standin::set_nccl_version(21803);
    expect({}, "");
    expect({.registration = nccl::Registration::buffers}, "NCCL 2.18.3 is loaded, expected 2.19.1 or later");
    expect({.registration = nccl::Registration::windows}, "NCCL 2.18.3 is loaded, expected 2.27.3 or later");
    expect({.survivable = true}, "NCCL 2.18.3 is loaded, expected 2.28.7 or later");
    return failures == 0 ? 0 : 1;
}
