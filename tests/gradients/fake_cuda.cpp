// A build of torch without CUDA refuses the word "cuda" where autograd asks for a stream. These
// two registrations answer it as an idle device would; there is no memory and no kernel behind it.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {
const c10::Device home(c10::kCUDA, 0);
const c10::Stream idle(c10::Stream::DEFAULT, home);

struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::kCUDA> {
  c10::Device exchangeDevice(c10::Device) const override { return home; }
  c10::Device getDevice() const override { return home; }
  c10::Stream getStream(c10::Device) const noexcept override { return idle; }
  c10::Stream getDefaultStream(c10::Device) const override { return idle; }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return idle; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag)
      const override {}
  void block(void*, const c10::Stream&) const override {}
};

c10::impl::DeviceGuardImplRegistrar registered(c10::kCUDA, new Guard());
} // namespace

namespace at {
struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};
REGISTER_CUDA_HOOKS(CUDAHooks);
} // namespace at
