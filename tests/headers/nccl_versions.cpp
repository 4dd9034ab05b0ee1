// SPDX-License-Identifier: Apache-2.0
// The NCCL engine built with an older or newer header of NCCL: what that has works, and what it lacks is refused with
// both versions.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/lane_order.hpp>
#include <shardkit/backend/nccl/unique_id.hpp>
#include <shardkit/backend/nccl/world.hpp>

#include "standin.hpp"

namespace {

namespace nccl = shardkit::nccl;

int failures = 0;

void expect(bool holds, const std::string& what) {
    if (holds) { return; }
    std::printf("built with NCCL %s: %s\n", nccl::version_text(NCCL_VERSION_CODE).c_str(), what.c_str());
    ++failures;
}

/// A World of one rank with these options, and a buffer in it.
void try_world(const nccl::Options& options, int minimum, const std::string& what) {
    std::string text;
    try {
        nccl::World world(nccl::UniqueId::create(), 1, 0, options);
        const auto buffer = world.state().buffer(400);
        world.finish();
    } catch (const std::exception& error) { text = error.what(); }
    const std::string built = "built with NCCL " + nccl::version_text(NCCL_VERSION_CODE) + ", expected " +
                              nccl::version_text(minimum) + " or later";
    const bool right = NCCL_VERSION_CODE >= minimum ? text.empty() : text.find(built) != std::string::npos;
    expect(right, what + ": " + (text.empty() ? "was not refused" : text));
}

/// What orders the launches of two communicators: their configuration, where NCCL's header and its library have it,
/// otherwise the environment.
void try_launch_order(int loaded) {
    standin::reset();
    standin::set_nccl_version(loaded);
    standin::set_multiprocessors(100);
    unsetenv(nccl::detail::launch_order_variable);
    nccl::detail::order_launches();
    const bool configures = NCCL_VERSION_CODE >= 23102 && loaded >= 23102;
    expect((std::getenv(nccl::detail::launch_order_variable) == nullptr) == configures, "who orders launches");
    nccl::Options options;
    options.max_ctas = 64;
    bool taken = true;
    try {
        nccl::detail::with_room_for_two(options, 0, 2, {});
    } catch (const std::exception&) { taken = false; }
    expect(taken == (loaded >= 22600), "launches are ordered");
#if NCCL_VERSION_CODE >= 23102
    expect(nccl::detail::config_of(options).launchOrderImplicit == 1, "a configuration orders launches");
#endif
    setenv(nccl::detail::launch_order_variable, "0", 1);
    taken = true;
    try {
        nccl::detail::with_room_for_two(options, 0, 2, {});
    } catch (const std::exception&) { taken = false; }
    expect(!taken, "the user's word is the last one");
    unsetenv(nccl::detail::launch_order_variable);
}

}  // namespace

int main() {
    for (const int loaded : {21801, 22809, 23102}) { try_launch_order(loaded); }
    standin::reset();
    standin::set_nccl_version(NCCL_VERSION_CODE);
    nccl::Options options;
    try_world(options, nccl::minimum_version, "a World");
    options.registration = nccl::Registration::buffers;
    try_world(options, nccl::registration_version, "registered buffers");
    const bool registers = NCCL_VERSION_CODE >= nccl::registration_version;
    expect(standin::calls("ncclCommRegister") == (registers ? 1 : 0), "registrations are not one");
    options.registration = nccl::Registration::windows;
    try_world(options, nccl::windows_version, "registered windows");
    const bool windows = NCCL_VERSION_CODE >= nccl::windows_version;
    expect(standin::calls("ncclCommWindowRegister") == (windows ? 1 : 0), "windows are not one");
    options.survivable = true;
    options.registration = nccl::Registration::none;
    try_world(options, nccl::revoke_version, "a survivable World");
    nccl::Options numbered;
    numbered.each_call.numbered = true;
    try_world(numbered, nccl::configured_calls_version, "numbered calls");
    nccl::Options resident;
    resident.each_call.resident_gathers = true;
    try_world(resident,
              NCCL_VERSION_CODE < nccl::configured_calls_version ? nccl::configured_calls_version
                                                                 : nccl::launch_event_version,
              "resident gathers");
    nccl::Options captured;
    captured.graph_usage = nccl::GraphUsage::one;
    captured.graph_stream_ordering = false;
    try_world(
        captured,
        NCCL_VERSION_CODE < nccl::graph_usage_version ? nccl::graph_usage_version : nccl::graph_ordering_version,
        "the order of captures");
    expect(standin::live() == standin::Live{}, "something is left behind");
    return failures == 0 ? 0 : 1;
}
