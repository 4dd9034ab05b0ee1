// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <string_view>

#include <cuda.h>

#include "state.hpp"

namespace {

struct ErrorText {
    cudaError_t code;
    const char* name;
    const char* text;
};

constexpr std::array error_texts{
    ErrorText{cudaSuccess, "cudaSuccess", "no error"},
    ErrorText{cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    ErrorText{cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    ErrorText{cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    ErrorText{cudaErrorCudartUnloading, "cudaErrorCudartUnloading", "driver shutting down"},
    ErrorText{cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    ErrorText{cudaErrorInvalidHostPointer, "cudaErrorInvalidHostPointer", "invalid host pointer"},
    ErrorText{cudaErrorInvalidDevicePointer, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
    ErrorText{cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
              "invalid copy direction for memcpy"},
    ErrorText{cudaErrorStubLibrary, "cudaErrorStubLibrary", "CUDA driver is a stub library"},
    ErrorText{cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
              "CUDA driver version is insufficient for CUDA runtime version"},
    ErrorText{cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable",
              "CUDA-capable device(s) is/are busy or unavailable"},
    ErrorText{cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    ErrorText{cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    ErrorText{cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    ErrorText{cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
              "no kernel image is available for execution on the device"},
    ErrorText{cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    ErrorText{cudaErrorNvlinkUncorrectable, "cudaErrorNvlinkUncorrectable",
              "uncorrectable NVLink error detected during the execution"},
    ErrorText{cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    ErrorText{cudaErrorIllegalState, "cudaErrorIllegalState",
              "the operation cannot be performed in the present state"},
    ErrorText{cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    ErrorText{cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    ErrorText{cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
              "too many resources requested for launch"},
    ErrorText{cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    ErrorText{cudaErrorContextIsDestroyed, "cudaErrorContextIsDestroyed", "context is destroyed"},
    ErrorText{cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered"},
    ErrorText{cudaErrorIllegalInstruction, "cudaErrorIllegalInstruction", "an illegal instruction was encountered"},
    ErrorText{cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    ErrorText{cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    ErrorText{cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    ErrorText{cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    ErrorText{cudaErrorSystemNotReady, "cudaErrorSystemNotReady", "system not yet initialized"},
    ErrorText{cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
              "operation not permitted when stream is capturing"},
    ErrorText{cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
              "operation failed due to a previous error during capture"},
    ErrorText{cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
              "operation would result in a merge of separate capture sequences"},
    ErrorText{cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
              "capture was not ended in the same stream as it began"},
    ErrorText{cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    ErrorText{cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
              "dependency created on uncaptured work in another stream"},
    ErrorText{cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
              "operation would make the legacy stream depend on a capturing blocking stream"},
    ErrorText{cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
              "operation not permitted on an event last recorded in a capturing stream"},
    ErrorText{cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
              "attempt to terminate a thread-local capture sequence from another thread"},
    ErrorText{cudaErrorTimeout, "cudaErrorTimeout", "wait operation timed out"},
    ErrorText{cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const ErrorText& text_of(cudaError_t error) {
    static constexpr ErrorText unknown{cudaErrorUnknown, "unrecognized error code", "unrecognized error code"};
    for (const ErrorText& each : error_texts) {
        if (each.code == error) { return each; }
    }
    return unknown;
}

/// The last error, and that of a broken device before it: it cannot be cleared.
cudaError_t last_error(const standin::State& s, const standin::ThreadState& thread) {
    const auto broken = s.broken.find(thread.device);
    return broken == s.broken.end() ? thread.last : broken->second;
}

}  // namespace

using standin::cuda_call;
using standin::Lock;
using standin::Needs;
using standin::State;
using standin::ThreadState;

const char* cudaGetErrorName(cudaError_t error) { return text_of(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return text_of(error).text; }

cudaError_t cudaGetLastError() {
    if (standin::in_host_function()) { return cudaErrorNotPermitted; }
    State& s = standin::state();
    const Lock lock(s.mutex);
    ThreadState& thread = standin::this_thread(s);
    const cudaError_t error = last_error(s, thread);
    thread.last = cudaSuccess;
    return error;
}
cudaError_t cudaPeekAtLastError() {
    if (standin::in_host_function()) { return cudaErrorNotPermitted; }
    State& s = standin::state();
    const Lock lock(s.mutex);
    return last_error(s, standin::this_thread(s));
}

cudaError_t cudaDriverGetVersion(int* version) {
    return cuda_call("cudaDriverGetVersion", Needs::nothing, [&](State&, Lock&, ThreadState&) {
        *version = CUDART_VERSION;
        return cudaSuccess;
    });
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned int, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
    return cuda_call("cudaGetDriverEntryPointByVersion", Needs::nothing, [&](State&, Lock&, ThreadState&) {
        CUresult (*const state_of)(CUdevice, unsigned int*, int*) = [](CUdevice device, unsigned int* flags,
                                                                       int* active) {
            State& s = standin::state();
            const Lock lock(s.mutex);
            if (device < 0 || device >= s.devices) { return CUDA_ERROR_INVALID_DEVICE; }
            *flags = 0;
            *active = s.contexts.count(device) != 0 ? 1 : 0;
            return CUDA_SUCCESS;
        };
        const bool known = std::string_view(symbol) == "cuDevicePrimaryCtxGetState";
        *function = known ? reinterpret_cast<void*>(state_of) : nullptr;
        if (result != nullptr) { *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound; }
        return cudaSuccess;
    });
}
cudaError_t cudaRuntimeGetVersion(int* version) {
    return cuda_call("cudaRuntimeGetVersion", Needs::nothing, [&](State&, Lock&, ThreadState&) {
        *version = CUDART_VERSION;
        return cudaSuccess;
    });
}

cudaError_t cudaGetDeviceCount(int* count) {
    return cuda_call("cudaGetDeviceCount", Needs::nothing, [&](State& s, Lock&, ThreadState&) {
        *count = s.devices;
        return s.devices == 0 ? cudaErrorNoDevice : cudaSuccess;
    });
}
cudaError_t cudaSetDevice(int device) {
    return cuda_call("cudaSetDevice", Needs::nothing, [&](State& s, Lock&, ThreadState& thread) {
        if (s.devices == 0) { return cudaErrorNoDevice; }
        if (device < 0 || device >= s.devices) { return cudaErrorInvalidDevice; }
        thread.device = device;
        s.contexts.try_emplace(device, "cudaSetDevice");  // from CUDA 12 on
        const auto broken = s.broken.find(device);
        return broken == s.broken.end() ? cudaSuccess : broken->second;
    });
}
cudaError_t cudaGetDevice(int* device) {
    return cuda_call("cudaGetDevice", Needs::nothing, [&](State& s, Lock&, ThreadState& thread) {
        if (s.devices == 0) { return cudaErrorNoDevice; }
        *device = thread.device;
        return cudaSuccess;
    });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    return cuda_call("cudaDeviceGetAttribute", Needs::device, [&](State& s, Lock&, ThreadState&) {
        if (device < 0 || device >= s.devices) { return cudaErrorInvalidDevice; }
        switch (attribute) {
            case cudaDevAttrMaxThreadsPerBlock:
                *value = 1024;
                return cudaSuccess;
            case cudaDevAttrMultiProcessorCount:
                *value = s.multiprocessors;
                return cudaSuccess;
            case cudaDevAttrComputeCapabilityMajor:
                *value = 9;
                return cudaSuccess;
            case cudaDevAttrComputeCapabilityMinor:
                *value = 0;
                return cudaSuccess;
        }
        return cudaErrorInvalidValue;
    });
}

cudaError_t cudaDeviceSynchronize() {
    return cuda_call("cudaDeviceSynchronize", Needs::device, [](State& s, Lock& lock, ThreadState& thread) {
        if (const cudaError_t error = standin::refuse_in_capture(s); error != cudaSuccess) { return error; }
        const int device = thread.device;
        const bool done =
            standin::block_until(s, lock, [&] { return s.is_broken(device) || standin::advance_device(s, device); });
        if (s.is_broken(device)) { return s.broken.at(device); }
        return done ? cudaSuccess : cudaErrorLaunchTimeout;
    });
}
